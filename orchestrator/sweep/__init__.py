"""How a study runs: what is left, on which Ray, stopped and resumed in order."""
