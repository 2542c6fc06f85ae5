"""Drawing: pictures of what ran, as static files and as one interactive page."""
