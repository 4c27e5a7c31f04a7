"""An image classifier: what is in a picture?"""
