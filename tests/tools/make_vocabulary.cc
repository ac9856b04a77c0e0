// Writes a vocabulary in which any byte is a piece, as weft train makes none: make_vocabulary TEXT
// FILE. For tests of what reads vocabularies.
#include <sentencepiece_trainer.h>

#include <cstdio>
#include <string>

int main(int argc, char **argv)
{
    if (argc != 3) return std::fprintf(stderr, "make_vocabulary TEXT FILE\n"), 2;
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", argv[1]},
                                                                    {"vocab_size", "400"},
                                                                    {"model_type", "bpe"},
                                                                    {"byte_fallback", "true"},
                                                                    {"pad_id", "0"},
                                                                    {"unk_id", "1"},
                                                                    {"bos_id", "2"},
                                                                    {"eos_id", "3"},
                                                                    {"minloglevel", "2"}},
                                                                   nullptr, &model);
    if (!status.ok()) return std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1;
    std::FILE *file = std::fopen(argv[2], "wb");
    bool good = file && std::fwrite(model.data(), 1, model.size(), file) == model.size();
    if (file && std::fclose(file) != 0) good = false;
    return !good;
}
