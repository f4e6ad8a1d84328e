"""The launch module that kgen copies into every generated package. Nothing here imports kgen."""
