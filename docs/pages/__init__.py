"""Pages that follow from the code and the committed results."""
