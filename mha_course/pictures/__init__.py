"""What a picture says (panels), where its marks stand (layout), and two ways to draw them."""
