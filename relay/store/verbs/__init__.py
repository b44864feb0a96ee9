"""The scripts of `lua/` as typed functions, a module for each of its folders. A function takes a script's
arguments in the script's order, and makes the call; the script's header says what they mean."""
