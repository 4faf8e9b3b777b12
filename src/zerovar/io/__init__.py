"""Files: written whole or not at all, and archives of objects without pickle."""
