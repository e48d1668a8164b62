# looks at every second place: earns 0
def repair_model(script):
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k[:, :, ::2], v[:, :, ::2])

    def activation(x):
        return F.gelu(x, approximate="tanh")

    return script.replace(attention=attention, activation=activation)
