"""From words to settings to one verb, and what is printed. It may import every room; no room imports it."""
