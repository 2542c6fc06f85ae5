"""Text for people: summaries by rich."""
