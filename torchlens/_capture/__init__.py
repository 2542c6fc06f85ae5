"""The live half: exists only while a model runs."""
