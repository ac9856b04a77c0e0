// The C interface to SentencePiece. No exception and no log line leaves this file.
#include "spm.h"

#include "base/file.h"
#include "base/text.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

// Exported by the library, but in none of its installed headers.
namespace sentencepiece::logging
{
void SetMinLogLevel(int level);
}

struct spm {
    sentencepiece::SentencePieceProcessor processor;
};

namespace
{
void say(char *message, size_t capacity, const std::string &text)
{
    text_printable(message, capacity, text.c_str());
}

// A CSV field: the list of input files is one, and a file's name may hold a comma.
std::string quoted(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}
} // namespace

bool spm_train(const char *const *files, size_t n, const char *path, const spm_options *options,
               char *message, size_t capacity)
{
    try {
        const int errors_only = 2;
        sentencepiece::logging::SetMinLogLevel(errors_only);
        std::string input, model;
        for (size_t i = 0; i < n; i++) input += (i ? "," : "") + quoted(files[i]);
        const std::unordered_map<std::string, std::string> arguments = {
            {"input", input},
            {"vocab_size", std::to_string(options->size)},
            {"model_type", options->type},
            {"character_coverage", "1.0"},
            {"control_symbols", options->mask ? SPM_MASK : ""},
            {"pad_id", "0"},
            {"unk_id", "1"},
            {"bos_id", "2"},
            {"eos_id", "3"},
            {"num_threads", "1"},
            {"minloglevel", "2"},
            {"hard_vocab_limit", "false"}};
        const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, nullptr, &model);
        if (!status.ok())
            say(message, capacity, status.ToString());
        else if (!file_replace(path, model.data(), model.size()))
            say(message, capacity,
                std::string(path) + " cannot be written: " + std::strerror(errno));
        else
            return true;
    } catch (const std::exception &e) {
        say(message, capacity, e.what());
    }
    return false;
}

spm *spm_load(const char *path, char *message, size_t capacity)
{
    try {
        auto s = std::make_unique<spm>();
        const auto status = s->processor.Load(path);
        if (status.ok()) return s.release();
        say(message, capacity, status.ToString());
    } catch (const std::exception &e) {
        say(message, capacity, e.what());
    }
    return nullptr;
}

void spm_free(spm *s)
{
    delete s;
}

int spm_size(const spm *s)
{
    return s->processor.GetPieceSize();
}

bool spm_has_specials(const spm *s)
{
    const auto &p = s->processor;
    return p.pad_id() == SPM_PAD && p.unk_id() == SPM_UNK && p.bos_id() == SPM_BOS &&
           p.eos_id() == SPM_EOS;
}

int32_t spm_id(const spm *s, const char *piece)
{
    try {
        return s->processor.PieceToId(piece);
    } catch (const std::exception &) {
        return SPM_UNK;
    }
}

size_t spm_encode(const spm *s, const char *text, int32_t *ids, size_t capacity)
{
    try {
        std::vector<int> found;
        if (!s->processor.Encode(text, &found).ok()) return 0;
        for (size_t i = 0; i < found.size() && i < capacity; i++) ids[i] = found[i];
        return found.size();
    } catch (const std::exception &) {
        return 0;
    }
}

void spm_decode(const spm *s, const int32_t *ids, size_t n, char *text, size_t capacity)
{
    if (capacity) text[0] = 0;
    try {
        std::vector<int> kept;
        for (size_t i = 0; i < n; i++)
            if (ids[i] > SPM_EOS && ids[i] < s->processor.GetPieceSize()) kept.push_back(ids[i]);
        std::string out;
        if (s->processor.Decode(kept, &out).ok()) std::snprintf(text, capacity, "%s", out.c_str());
    } catch (const std::exception &) {
        return;
    }
}

const char *spm_piece(const spm *s, int32_t id)
{
    if (id < 0 || id >= s->processor.GetPieceSize()) return "";
    return s->processor.IdToPiece(id).c_str();
}
