# dishonest: torch's own under another name: earns 0
class Scaler(torch.amp.GradScaler):
    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
