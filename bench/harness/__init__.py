"""What every measurement needs: a server, relays, applications, and ways to look at them."""
