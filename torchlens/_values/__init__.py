"""What a value is and where it lives: a version of a storage, seen through a geometry."""
