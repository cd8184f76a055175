"""Films, figures and self-contained pages, made from saved flights and tables."""
