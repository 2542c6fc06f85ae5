"""The inert half: reads what a capture wrote down."""
