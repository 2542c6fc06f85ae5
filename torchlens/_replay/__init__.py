"""Running recorded calls again, their inputs taken through the edges of the graph."""
