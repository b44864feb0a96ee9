"""What a server can do, by trying it: no version says so."""
