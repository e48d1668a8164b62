# keeps y, and x too, on ctx, where nothing is said of saving it: earns 0


def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.x = inputs[0]

    first.register_fake(lambda x: x.new_empty(x.shape))
    second.register_fake(lambda dy, y: y.new_empty(y.shape))
    first.register_autograd(lambda ctx, dy: second(dy, *ctx.saved_tensors), setup_context=keep)
    return first
