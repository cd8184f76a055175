"""Pictures of what flew: films, figures and self-contained pages."""
