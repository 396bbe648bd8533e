"""The gallery: one folder of figures, tables and provenance for each experiment."""
