"""What names a place: call chains folded to keys, and calls spelt as the code wrote them. Imports no torch."""
