"""Films, figures and self-contained HTML reports, drawn from saved flights and tables."""
