"""`ancre data prepare`: text of any size becomes a folder of shards, in parallel; killed, it goes on where it was."""
