"""A Franka Panda at a table: the model, what it shows and what an action does, for native MuJoCo and for MJX alike."""
