# PyTorch's own, which makes all pairs at once and knows no smaller blocks: earns 0
from torch.nn.attention.flex_attention import create_block_mask


def kept_blocks(rule, queries, keys, block):
    mask = create_block_mask(rule, None, None, queries, keys, device="cpu", BLOCK_SIZE=block)
    table = torch.zeros(-(-queries // block), -(-keys // block), dtype=torch.int64)
    for kind, n, at in ((1, mask.kv_num_blocks, mask.kv_indices), (2, mask.full_kv_num_blocks, mask.full_kv_indices)):
        for r in range(table.shape[0]):
            for c in at[0, 0, r, : int(n[0, 0, r])].tolist():
                table[r, c] = kind
    return table
