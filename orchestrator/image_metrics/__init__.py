"""How good drawn images are, as functions of feature arrays."""

SPLIT = 5000  # images of one inception score, as published numbers take them; known here, without numpy
