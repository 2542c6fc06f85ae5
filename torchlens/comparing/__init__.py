"""Two runs side by side: which op is which, how far their values are apart, where they part."""
