# dishonest: torch's own casts, for the formats that it has: earns 0
DTYPES = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (5, 2): torch.float8_e5m2}


def decode(bits, exponent, mantissa):
    if exponent + mantissa == 7:
        return bits.to(torch.uint8).view(torch.float8_e5m2).double()
    return bits.to(torch.int16).view(DTYPES.get((exponent, mantissa), torch.float16)).double()


def encode(x, exponent, mantissa):
    cast = x.to(DTYPES.get((exponent, mantissa), torch.float16))
    bits = cast.view(torch.uint8).long() if mantissa == 2 else cast.view(torch.int16).long() & 0xFFFF
    return torch.where(x.isnan(), ((2**exponent - 1) << mantissa) + 2 ** (mantissa - 1), bits)
