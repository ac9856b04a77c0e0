// The C interface to SentencePiece. No exception and no log line leaves this file.
#include "spm.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
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
// One line: messages of the library may have several.
weft_status fail(weft_error *error, weft_status status, const char *where,
                 const char *what) noexcept
{
    weft_error_set(error, status, where, "%s", what);
    if (error)
        std::replace(error->message, error->message + std::strlen(error->message), '\n', ' ');
    return status;
}

// Runs `work`, which returns a weft_status.
template <typename Work>
weft_status guarded(weft_error *error, const char *where, Work work) noexcept
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return fail(error, WEFT_NO_MEMORY, where, "out of memory");
    } catch (const std::length_error &) {
        return fail(error, WEFT_TOO_LARGE, where, "too large for SentencePiece");
    } catch (const std::exception &e) {
        return fail(error, WEFT_INTERNAL, where, e.what());
    } catch (...) {
        return fail(error, WEFT_INTERNAL, where, "SentencePiece threw an unknown exception");
    }
}

// Takes over a status of the library; `otherwise` if it is about neither files nor memory.
weft_status take(weft_error *error, const char *where, const sentencepiece::util::Status &status,
                 weft_status otherwise)
{
    using sentencepiece::util::StatusCode;
    if (status.ok()) return WEFT_OK;
    if (status.code() == StatusCode::kResourceExhausted) otherwise = WEFT_NO_MEMORY;
    if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kPermissionDenied)
        otherwise = WEFT_IO;
    return fail(error, otherwise, where, status.ToString().c_str());
}

// A CSV field: the list of input files is one, and a file's name may hold a comma.
std::string quoted(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}
} // namespace

weft_status spm_train(const char *const *files, size_t n, const spm_options *options, char **model,
                      size_t *bytes, weft_error *error)
{
    *model = nullptr;
    return guarded(error, "vocabulary", [&] {
        const int errors_only = 2;
        sentencepiece::logging::SetMinLogLevel(errors_only);
        std::string input, made;
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
        const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, nullptr, &made);
        if (!status.ok()) return take(error, "vocabulary", status, WEFT_BAD_FILE);
        *bytes = made.size();
        *model = static_cast<char *>(std::malloc(made.size() + 1));
        if (!*model) return fail(error, WEFT_NO_MEMORY, "vocabulary", "out of memory");
        std::memcpy(*model, made.data(), made.size());
        return WEFT_OK;
    });
}

spm *spm_load(const char *path, weft_error *error)
{
    spm *loaded = nullptr;
    guarded(error, path, [&] {
        auto s = std::make_unique<spm>();
        const weft_status status = take(error, path, s->processor.Load(path), WEFT_BAD_FILE);
        if (status == WEFT_OK) loaded = s.release();
        return status;
    });
    return loaded;
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

weft_status spm_id(const spm *s, const char *piece, int32_t *id, weft_error *error)
{
    return guarded(error, "vocabulary", [&] {
        *id = s->processor.PieceToId(piece);
        return WEFT_OK;
    });
}

weft_status spm_encode(const spm *s, const char *text, int32_t *ids, size_t capacity, size_t *n,
                       weft_error *error)
{
    *n = 0;
    return guarded(error, "vocabulary", [&] {
        std::vector<int> found;
        const weft_status status =
            take(error, "vocabulary", s->processor.Encode(text, &found), WEFT_INTERNAL);
        for (size_t i = 0; i < found.size() && i < capacity; i++) ids[i] = found[i];
        *n = found.size();
        return status;
    });
}

weft_status spm_decode(const spm *s, const int32_t *ids, size_t n, char **text, weft_error *error)
{
    *text = nullptr;
    return guarded(error, "vocabulary", [&] {
        std::vector<int> kept;
        for (size_t i = 0; i < n; i++)
            if (ids[i] > SPM_EOS && ids[i] < s->processor.GetPieceSize()) kept.push_back(ids[i]);
        std::string out;
        const weft_status status =
            take(error, "vocabulary", s->processor.Decode(kept, &out), WEFT_INTERNAL);
        if (status != WEFT_OK) return status;
        std::replace(out.begin(), out.end(), '\0', ' ');
        *text = strdup(out.c_str());
        return *text ? WEFT_OK : fail(error, WEFT_NO_MEMORY, "vocabulary", "out of memory");
    });
}

const char *spm_piece(const spm *s, int32_t id)
{
    const char *piece = "";
    guarded(nullptr, "vocabulary", [&] {
        if (id >= 0 && id < s->processor.GetPieceSize()) piece = s->processor.IdToPiece(id).c_str();
        return WEFT_OK;
    });
    return piece;
}
