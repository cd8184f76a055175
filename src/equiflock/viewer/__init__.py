"""The live view: a server that simulates flocks, and a page that shows them and lets the user interact."""
