"""The live page: a server that flies flocks, and the page that shows them and lets a person touch them."""
