"""What names a place: call chains folded to keys, calls spelt as the code wrote them. Imports no torch."""
