"""From tables to what people look at: figures, boards, banners, the gate."""
