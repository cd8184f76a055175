"""Control laws that were written down, not learned."""
