"""Programs that tests run, and what is known about them."""
