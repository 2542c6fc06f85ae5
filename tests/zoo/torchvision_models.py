"""torchvision: classification, detection, segmentation, optical flow, video, quantized."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torchvision import models
from torchvision.models import detection, optical_flow, quantization, segmentation, video
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.detection import backbone_utils
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2
from torchvision.models.video import mvit, resnet

from tests.zoo.entry import Entry, Inputs, training, under

PACKED = "packed weights are objects that a trace does not hold, so calls with them are not made again"


def images(*shape: int) -> Callable[[], Inputs]:
    return lambda: Inputs((torch.randn(shape),))


def pictures(*heights: int) -> Callable[[], Inputs]:
    """A list of images of several sizes, as detectors take them."""
    return lambda: Inputs(([torch.rand(3, height, heights[0]) for height in heights],))


def backbone() -> nn.Module:
    """A small ResNet with a feature pyramid of 32 channels."""
    layers = {f"layer{at}": str(at - 1) for at in (1, 2, 3, 4)}
    body = models.ResNet(BasicBlock, [1, 1, 1, 1])
    return backbone_utils.BackboneWithFPN(body, layers, [64, 128, 256, 512], 32)


def swin(**options: Any) -> nn.Module:
    sizes = dict(patch_size=[4, 4], embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=[4, 4])
    return models.SwinTransformer(**sizes, num_classes=10, **options)


def swin_v2() -> nn.Module:
    return swin(block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2)


def swin_3d() -> nn.Module:
    sizes = dict(patch_size=[2, 4, 4], embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=[2, 4, 4])
    return video.SwinTransformer3d(**sizes, num_classes=10)


def multiscale_vit() -> nn.Module:
    first = mvit.MSBlockConfig(1, 16, 32, [], [1, 4, 4], [], [1, 4, 4])
    second = mvit.MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2])
    options = dict(residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True)
    return video.MViT((32, 32), 4, [first, second], **options, proj_after_attn=True, num_classes=10)


def maxvit() -> nn.Module:
    sizes = dict(input_size=(64, 64), stem_channels=16, partition_size=2, block_channels=[16, 32])
    return models.MaxVit(**sizes, block_layers=[1, 1], head_dim=8, stochastic_depth_prob=0.0, num_classes=10)


def vgg() -> nn.Module:
    layers = models.vgg.make_layers([8, "M", 16, "M", 16, 16, "M"], batch_norm=True)
    with torch.device("meta"):  # its head would have a hundred million parameters
        model = models.VGG(layers, num_classes=10, init_weights=False)
    model.classifier = nn.Sequential(
        nn.Linear(16 * 7 * 7, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 10)
    )
    return model


def s3d() -> nn.Module:
    model = video.s3d(weights=None, num_classes=10)
    model.avgpool = nn.AvgPool3d((1, 2, 2), stride=1)  # the usual one asks for 7x7
    return model


def video_resnet(conv: type, stem: type) -> nn.Module:
    return video.VideoResNet(resnet.BasicBlock, [conv] * 4, [1, 1, 1, 1], stem, num_classes=10)


def entry(name: str, family: str, build: Callable[[], nn.Module], inputs: Any, **facts: Any) -> Entry:
    return Entry(name, "torchvision", family, lambda: build().eval(), inputs, **facts)


def classifiers() -> list[Entry]:
    tiny = dict(weights=None, num_classes=10)
    convnext = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 1)]
    table: list[tuple[str, Callable[[], nn.Module], int]] = [
        ("AlexNet", partial(models.alexnet, **tiny), 64),
        ("ConvNeXt", lambda: models.ConvNeXt(convnext, num_classes=10), 64),
        ("DenseNet", lambda: models.DenseNet(8, (2, 2, 2), 16, num_classes=10), 64),
        ("EfficientNet-B0", partial(models.efficientnet_b0, **tiny), 64),
        ("GoogLeNet", partial(models.googlenet, **tiny, init_weights=False), 64),
        ("Inception v3", partial(models.inception_v3, **tiny, init_weights=False), 96),
        ("MNASNet 0.5", partial(models.mnasnet0_5, **tiny), 64),
        ("MobileNet v2", partial(models.mobilenet_v2, width_mult=0.35, **tiny), 64),
        ("MobileNet v3 small", partial(models.mobilenet_v3_small, **tiny), 64),
        ("RegNetX 400MF", partial(models.regnet_x_400mf, **tiny), 64),
        ("RegNetY 400MF", partial(models.regnet_y_400mf, **tiny), 64),
        ("ResNet", lambda: models.ResNet(BasicBlock, [2, 1, 1, 1], num_classes=10), 64),
        ("ResNeXt", lambda: models.ResNet(Bottleneck, [1, 1, 1, 1], groups=8, width_per_group=4), 64),
        ("ShuffleNet v2 x0.5", partial(models.shufflenet_v2_x0_5, **tiny), 64),
        ("SqueezeNet 1.1", partial(models.squeezenet1_1, **tiny), 64),
        ("VGG", vgg, 64),
    ]
    return [entry(name, "convolutional", build, images(2, 3, size, size)) for name, build, size in table]


def transformers() -> list[Entry]:
    vit = partial(models.VisionTransformer, 32, 8, 2, 2, 32, 64, num_classes=10)
    table = [("ViT", vit, 32), ("Swin", swin, 32), ("Swin v2", swin_v2, 32), ("MaxViT", maxvit, 64)]
    return [entry(name, "vision transformer", build, images(2, 3, size, size)) for name, build, size in table]


def two_stages(kind: Callable[..., nn.Module], **heads: Any) -> nn.Module:
    box = dict(box_head=TwoMLPHead(32 * 7 * 7, 32), box_predictor=FastRCNNPredictor(32, 5))
    few = dict(min_size=64, max_size=64, rpn_post_nms_top_n_test=8, box_detections_per_img=4)
    return kind(backbone(), **box, **few, **heads)


def mask_rcnn() -> nn.Module:
    heads = dict(mask_head=MaskRCNNHeads(32, (16,), 1), mask_predictor=MaskRCNNPredictor(16, 16, 5))
    return two_stages(detection.MaskRCNN, **heads)


def keypoint_rcnn() -> nn.Module:
    heads = dict(keypoint_head=KeypointRCNNHeads(32, (16,)), keypoint_predictor=KeypointRCNNPredictor(16, 5))
    return two_stages(detection.KeypointRCNN, **heads)


def detectors() -> list[Entry]:
    sized = dict(num_classes=5, min_size=64, max_size=64)
    plain = dict(weights=None, weights_backbone=None, num_classes=5)
    ssd = partial(detection.ssdlite320_mobilenet_v3_large, **plain)
    table: list[tuple[str, Callable[[], nn.Module]]] = [
        ("Faster R-CNN", lambda: two_stages(detection.FasterRCNN)),
        ("Mask R-CNN", mask_rcnn),
        ("Keypoint R-CNN", keypoint_rcnn),
        ("RetinaNet", lambda: detection.RetinaNet(backbone(), **sized)),
        ("FCOS", lambda: detection.FCOS(backbone(), **sized)),
    ]
    found = [entry(name, "detection", build, pictures(64, 56)) for name, build in table]
    return [*found, entry("SSDlite320", "detection", ssd, pictures(320))]


def segmenters() -> list[Entry]:
    plain = dict(weights=None, weights_backbone=None, num_classes=5)
    table = [
        ("FCN", partial(segmentation.fcn_resnet50, **plain, aux_loss=True)),
        ("DeepLab v3", partial(segmentation.deeplabv3_mobilenet_v3_large, **plain)),
        ("LR-ASPP", partial(segmentation.lraspp_mobilenet_v3_large, **plain)),
    ]
    return [entry(name, "segmentation", build, images(1, 3, 64, 64)) for name, build in table]


def clips() -> list[Entry]:
    table: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
        ("R3D", partial(video_resnet, resnet.Conv3DSimple, resnet.BasicStem), (1, 3, 4, 32, 32)),
        ("MC3", partial(video_resnet, resnet.Conv3DNoTemporal, resnet.BasicStem), (1, 3, 4, 32, 32)),
        ("R(2+1)D", partial(video_resnet, resnet.Conv2Plus1D, resnet.R2Plus1dStem), (1, 3, 4, 32, 32)),
        ("S3D", s3d, (1, 3, 8, 64, 64)),
        ("MViT", multiscale_vit, (1, 3, 4, 32, 32)),
        ("Swin3D", swin_3d, (1, 3, 4, 32, 32)),
    ]
    return [entry(name, "video", build, images(*shape)) for name, build, shape in table]


def others() -> list[Entry]:
    quantized = partial(quantization.mobilenet_v2, weights=None, quantize=True, num_classes=10)
    flow = lambda: Inputs((torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)), {"num_flow_updates": 3})
    return [
        entry("RAFT small", "dense prediction", partial(optical_flow.raft_small, weights=None), flow),
        entry("MobileNet v2, int8", "quantized", quantized, images(1, 3, 64, 64), notes=PACKED),
    ]


def settings(made: list[Entry]) -> list[Entry]:
    named = {entry.name: entry for entry in made}
    return [
        training(named["ResNet"]),
        under(named["ResNet"], "in inference mode", torch.inference_mode),
        under(named["ViT"], "without gradients", torch.no_grad),
        under(named["Swin"], "in bfloat16", partial(torch.autocast, "cpu", torch.bfloat16)),
    ]


ENTRIES = [*classifiers(), *transformers(), *detectors(), *segmenters(), *clips(), *others()]
ENTRIES += settings(ENTRIES)
