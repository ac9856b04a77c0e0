// See spm.h. No exception and no log line leaves this file.
#include "spm.h"
#include "reserve.h"
#include "streams.h"

#include "base/file.h"
#include "base/text.h"
#include "text_file.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
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

namespace
{
using sentencepiece::SentencePieceProcessor;

// Joins the lines of a message of the library.
weft_status fail(weft_error *error, weft_status status, const char *where,
                 const char *what) noexcept
{
    char line[sizeof error->message];
    weft_error_set(error, status, where, "%s", weft__text_printable(line, sizeof line, what));
    return status;
}

// Bytes in reserve for the work on a few ids, on a model, on a text, and for training: tests fail
// all allocations from any one on. A reserve that is not used costs address space only.
constexpr size_t for_ids = 65536, for_training = (size_t)64 << 20;
size_t for_model(size_t bytes)
{
    return for_ids + 64 * bytes;
}
size_t for_text(size_t bytes)
{
    return for_ids + 1024 * bytes;
}

// Runs `work`, which returns a weft_status, with `bytes` in reserve: SentencePiece and its protobuf
// end the process if some of their allocations fail.
template <typename Work>
weft_status guarded(weft_error *error, const char *where, size_t bytes, Work work) noexcept
{
    try {
        Reserve reserve(bytes);
        const weft_status status = work();
        return reserve.used() ? fail(error, WEFT_NO_MEMORY, where, "out of memory") : status;
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

// A message of the library without its source location, "./src/x.cc(12) [condition] ".
std::string cause_of(const char *message)
{
    const std::string text = message;
    size_t at = text.find(".cc(");
    if (at == std::string::npos) return text;
    at = text.find('[', at);
    int depth = 0;
    for (; at < text.size(); at++) {
        depth += (text[at] == '[') - (text[at] == ']');
        if (!depth) return text.substr(std::min(at + 2, text.size()));
    }
    return "";
}

// Converts a status of the library; `otherwise` unless it is out of memory.
weft_status take(weft_error *error, const char *where, const sentencepiece::util::Status &status,
                 weft_status otherwise)
{
    using sentencepiece::util::StatusCode;
    if (status.ok()) return WEFT_OK;
    if (status.code() == StatusCode::kResourceExhausted)
        return fail(error, WEFT_NO_MEMORY, where, "out of memory");
    const std::string cause = cause_of(status.message());
    return fail(error, otherwise, where, cause.empty() ? "SentencePiece failed" : cause.c_str());
}

// Why no vocabulary was made.
weft_status training_failed(weft_error *error, const sentencepiece::util::Status &status)
{
    const char *message = status.message(), *needed = std::strstr(message, "required_chars. ");
    int asked, needed_pieces;
    if (needed && std::sscanf(needed, "required_chars. %d vs %d", &asked, &needed_pieces) == 2)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "vocabulary",
                              "%d pieces are too few: the text needs %d, for each character and "
                              "special token",
                              asked, needed_pieces);
    return take(error, "vocabulary", status, WEFT_BAD_FILE);
}

std::unordered_map<std::string, std::string> training_arguments(const spm_options *options)
{
    std::unordered_map<std::string, std::string> arguments = {
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
    if (options->identity)
        arguments.insert({{"normalization_rule_name", "identity"},
                          {"add_dummy_prefix", "false"},
                          {"remove_extra_whitespaces", "false"},
                          {"allow_whitespace_only_pieces", "true"},
                          {"byte_fallback", "true"}});
    return arguments;
}

// The bytes of a file.
weft_status read_file(const char *path, std::string *bytes, weft_error *error)
{
    const std::unique_ptr<FILE, int (*)(FILE *)> file(weft__file_open_stdio(path), std::fclose);
    char block[4096];
    if (!file)
        return weft_error_set(error, WEFT_IO, path, "cannot be opened: %s",
                              weft__file_error(errno));
    while (const size_t n = std::fread(block, 1, sizeof block, file.get())) bytes->append(block, n);
    if (!std::ferror(file.get())) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, path, "cannot be read: %s", std::strerror(errno));
}

// Thrown at the end of text without a visible character: SentencePiece would end the process.
struct no_text {
};

// Whether UTF-8 has a character that no normalisation drops or turns into a blank: a visible one of
// ASCII, or one above U+00AD except U+2000 to U+206F, blocks (such as U+2581, SentencePiece's sign
// for a blank), U+3000 and U+FEFF.
bool is_visible(const std::string &text)
{
    for (size_t i = 0; i < text.size(); i++) {
        const auto byte = [&](size_t k) {
            return i + k < text.size() ? (unsigned char)text[i + k] : 0;
        };
        const unsigned char c = byte(0), d = byte(1), e = byte(2);
        if (c > ' ' && c < 0x7F) return true;
        if (c < 0xC2) continue; // within a character, or none
        const bool blank =
            (c == 0xC2 && d <= 0xAD) || (c == 0xE2 && (d == 0x80 || d == 0x81 || d == 0x96)) ||
            (c == 0xE3 && d == 0x80 && e == 0x80) || (c == 0xEF && d == 0xBB && e == 0xBF);
        if (!blank) return true;
    }
    return false;
}

// The lines of text files for training a vocabulary: without line ends and a byte order mark. Lines
// that are not UTF-8 are left out; long ones are split between words where possible.
class Lines : public sentencepiece::SentenceIterator
{
  public:
    Lines(const char *const *files, size_t n, spm_counts *counts, weft_error *error)
        : files(files, files + n), counts(counts), error(error)
    {
        Next();
    }
    ~Lines() override
    {
        stream_close(file);
        std::free(buffer);
    }
    Lines(const Lines &) = delete;
    Lines &operator=(const Lines &) = delete;
    bool done() const override { return ended; }
    const std::string &value() const override { return piece; }
    sentencepiece::util::Status status() const override { return {}; }
    void Next() override
    {
        while (at >= line.size())
            if (!read()) return;
        size_t n = line.size() - at;
        if (n > SPM_LINE_BYTES) n = cut();
        piece = line.substr(at, n);
        at += n;
    }

  private:
    // The next line into `line`, empty if it is left out; false at the end of the last file.
    bool read()
    {
        at = 0;
        line.clear();
        while (!file || !weft__text_read_line(file, &buffer, &capacity, &length)) {
            if (file && !weft__text_at_end(file, files[next - 1].c_str(), error))
                return !(ended = true);
            stream_close(file);
            file = nullptr;
            if (next == files.size()) {
                std::free(buffer); // the constructor may be at work
                buffer = nullptr;
                if (!visible) throw no_text();
                return !(ended = true);
            }
            file = stream_open(files[next++].c_str(), error);
            if (!file) return !(ended = true);
            first = true;
        }
        if (first) weft__text_skip_mark(buffer, &length);
        first = false;
        line.assign(buffer, length);
        counts->lines++;
        if (!weft_text_is_utf8(line.data(), line.size())) {
            counts->invalid++;
            line.clear();
        }
        visible = visible || is_visible(line);
        if (line.size() > SPM_LINE_BYTES) counts->split++;
        return true;
    }
    // The bytes from `at` to the last blank within SPM_LINE_BYTES, or to the last whole character.
    size_t cut() const
    {
        const size_t blank = line.rfind(' ', at + SPM_LINE_BYTES - 1);
        if (blank != std::string::npos && blank > at) return blank - at;
        size_t n = SPM_LINE_BYTES;
        while ((line[at + n] & 0xC0) == 0x80) n--;
        return n;
    }

    std::vector<std::string> files;
    spm_counts *counts;
    weft_error *error; // of a file that cannot be read
    FILE *file = nullptr;
    char *buffer = nullptr;
    size_t capacity = 0, length = 0;
    std::string line, piece;
    size_t next = 0, at = 0;
    bool first = true, ended = false, visible = false;
};

// A field of a protobuf message; the library installs no header for its messages.
struct field {
    bool found;
    uint64_t number;   // of a varint
    std::string bytes; // of a text or message
};

uint64_t read_varint(const std::string &message, size_t *at)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 64 && *at < message.size(); shift += 7) {
        const unsigned char byte = (unsigned char)message[(*at)++];
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) break;
    }
    return number;
}

// The first field of that tag.
field find_field(const std::string &message, uint64_t tag)
{
    for (size_t at = 0; at < message.size();) {
        const uint64_t key = read_varint(message, &at);
        field f = {true, 0, ""};
        size_t length = 0;
        switch (key & 7) {
        case 0:
            f.number = read_varint(message, &at);
            break;
        case 1:
            length = 8;
            break;
        case 2:
            length = read_varint(message, &at);
            break;
        case 5:
            length = 4;
            break;
        default:
            return {};
        }
        if (length > message.size() - at) break;
        if (key >> 3 == tag) f.bytes = message.substr(at, length);
        if (key >> 3 == tag) return f;
        at += length;
    }
    return {};
}

const SentencePieceProcessor &processor_of(void *state)
{
    return *static_cast<const SentencePieceProcessor *>(state);
}

// How a vocabulary was made: bpe, unigram, char or word; nmt_nfkc (that of `weft train`), identity, or
// another of SentencePiece; "unknown" if the file names neither.
void find_kind(const SentencePieceProcessor &p, weft_tokenizer_info *info)
{
    // ModelProto of sentencepiece_model.proto: trainer_spec = 2, in it model_type = 3;
    // normalizer_spec = 3, in it name = 1. An absent type is 1.
    static const char *const types[] = {"unknown", "unigram", "bpe", "word", "char"};
    const std::string bytes = p.serialized_model_proto();
    const field trainer = find_field(bytes, 2), normalizer = find_field(bytes, 3);
    const field type = find_field(trainer.bytes, 3), name = find_field(normalizer.bytes, 1);
    info->type = types[!type.found ? 1 : type.number < 5 ? type.number : 0];
    info->normalization = "unknown";
    for (const char *known : {"nmt_nfkc_cf", "nmt_nfkc", "nfkc_cf", "nfkc", "identity"})
        if (name.bytes == known) info->normalization = known;
}

weft_status encode_spans(const SentencePieceProcessor &p, const char *text, int32_t *ids,
                         weft_text_span *spans, size_t capacity, size_t *n)
{
    const auto encoded = p.EncodeAsImmutableProto(text); // has what the pieces point to
    const auto pieces = encoded.pieces();
    for (size_t i = 0; i < pieces.size() && i < capacity; i++) {
        spans[i] = {pieces[i].begin(), pieces[i].end()};
        if (ids) ids[i] = (int32_t)pieces[i].id();
    }
    *n = pieces.size();
    return WEFT_OK;
}

weft_status encode(void *state, const char *text, int32_t *ids, weft_text_span *spans,
                   size_t capacity, size_t *n, weft_error *error)
{
    const SentencePieceProcessor &p = processor_of(state);
    return guarded(error, "vocabulary", for_text(std::strlen(text)), [&] {
        if (spans) return encode_spans(p, text, ids, spans, capacity, n);
        std::vector<int> found;
        const weft_status status = take(error, "vocabulary", p.Encode(text, &found), WEFT_INTERNAL);
        for (size_t i = 0; ids && i < found.size() && i < capacity; i++) ids[i] = found[i];
        *n = found.size();
        return status;
    });
}

weft_status characters(void *state, const char *text, size_t *n, weft_error *error)
{
    return guarded(error, "vocabulary", for_text(std::strlen(text)), [&] {
        const auto &p = processor_of(state);
        std::vector<std::string> pieces, probe;
        weft_status status = take(error, "vocabulary", p.Encode(text, &pieces), WEFT_INTERNAL);
        if (status == WEFT_OK)
            status = take(error, "vocabulary", p.Encode("a", &probe), WEFT_INTERNAL);
        if (status != WEFT_OK) return status;
        for (const std::string &piece : pieces) {
            // The piece of a byte is written <0x0A>.
            const bool byte = p.IsByte(p.PieceToId(piece));
            const auto begins = [](unsigned char c) { return (c & 0xC0) != 0x80; };
            if (byte)
                *n += begins((unsigned char)std::stoi(piece.substr(3, 2), nullptr, 16));
            else
                *n += (size_t)std::count_if(piece.begin(), piece.end(), begins);
        }
        // Most vocabularies put a blank before a text, which is not part of the text.
        static const std::string blank = "\xE2\x96\x81";
        const bool extra = !probe.empty() && probe[0].compare(0, blank.size(), blank) == 0;
        if (*n && extra) --*n;
        return WEFT_OK;
    });
}

// The bytes of a decoded text. For each id, its span.
std::string decode_spans(const SentencePieceProcessor &p, const std::vector<int> &ids,
                         weft_text_span *spans)
{
    const auto decoded = p.DecodeIdsAsImmutableProto(ids);
    const auto pieces = decoded.pieces();
    size_t end = 0;
    for (size_t i = 0; i < ids.size(); i++) {
        spans[i] = {end, end};
        if (i < pieces.size()) spans[i] = {pieces[i].begin(), end = pieces[i].end()};
    }
    return decoded.text();
}

weft_status decode(void *state, const int32_t *ids, size_t n, char **text, weft_text_span *spans,
                   weft_error *error)
{
    const SentencePieceProcessor &p = processor_of(state);
    const weft_status done = guarded(error, "vocabulary", for_text(64 * n), [&] {
        const std::vector<int> list(ids, ids + n);
        std::string out;
        weft_status status = WEFT_OK;
        if (spans)
            out = decode_spans(p, list, spans);
        else
            status = take(error, "vocabulary", p.Decode(list, &out), WEFT_INTERNAL);
        if (status != WEFT_OK) return status;
        std::replace(out.begin(), out.end(), '\0', ' ');
        *text = strdup(out.c_str());
        return *text ? WEFT_OK : fail(error, WEFT_NO_MEMORY, "vocabulary", "out of memory");
    });
    if (done == WEFT_OK) return WEFT_OK;
    std::free(*text); // a text for which memory was out
    *text = nullptr;
    return done;
}

weft_status find(void *state, const char *piece, int32_t *id, weft_error *error)
{
    return guarded(error, "vocabulary", for_ids, [&] {
        const SentencePieceProcessor &p = processor_of(state);
        const int found = p.PieceToId(piece); // the unknown piece's if there is none
        if (p.IdToPiece(found) == piece) *id = found;
        return WEFT_OK;
    });
}

const char *piece_of(void *state, int32_t id)
{
    const char *piece = "";
    guarded(nullptr, "vocabulary", for_ids, [&] {
        piece = processor_of(state).IdToPiece(id).c_str();
        return WEFT_OK;
    });
    return piece;
}

weft_piece_role role_of(void *state, int32_t id)
{
    const SentencePieceProcessor &p = processor_of(state);
    if (p.IsControl(id) || p.IsUnknown(id)) return WEFT_PIECE_SPECIAL;
    return p.IsByte(id) ? WEFT_PIECE_BYTE : WEFT_PIECE_TEXT;
}

void free_processor(void *state)
{
    delete static_cast<SentencePieceProcessor *>(state);
}

const weft_tokenizer_kind sentencepiece_kind = {"SentencePiece", encode,  decode,     find,
                                                piece_of,        role_of, characters, nullptr,
                                                free_processor,  nullptr};

} // namespace

weft_status spm_train(const char *const *files, size_t n, const spm_options *options,
                      spm_counts *counts, char **model, size_t *bytes, weft_error *error)
{
    *model = nullptr;
    *counts = {0, 0, 0};
    const weft_status trained = guarded(error, "vocabulary", for_training, [&] {
        const int errors_only = 2;
        sentencepiece::logging::SetMinLogLevel(errors_only);
        std::string made;
        weft_error unreadable = {};
        sentencepiece::util::Status status;
        try {
            Lines lines(files, n, counts, &unreadable);
            status = sentencepiece::SentencePieceTrainer::Train(training_arguments(options), &lines,
                                                                &made);
        } catch (const no_text &) {
            return fail(error, WEFT_BAD_FILE, "vocabulary",
                        "the text has no character to learn from");
        }
        if (unreadable.status != WEFT_OK)
            return weft_error_set(error, unreadable.status, unreadable.where, "%s",
                                  unreadable.message);
        if (!status.ok()) return training_failed(error, status);
        *bytes = made.size();
        *model = static_cast<char *>(std::malloc(made.size() + 1));
        if (!*model) return fail(error, WEFT_NO_MEMORY, "vocabulary", "out of memory");
        std::memcpy(*model, made.data(), made.size());
        return WEFT_OK;
    });
    if (trained != WEFT_OK) std::free(*model);
    if (trained != WEFT_OK) *model = nullptr;
    return trained;
}

weft_tokenizer *spm_parse(const char *model, size_t bytes, const char *where, weft_error *error)
{
    weft_tokenizer *made = nullptr;
    const weft_status status = guarded(error, where, for_model(bytes), [&] {
        auto p = std::make_unique<SentencePieceProcessor>();
        const auto status = p->LoadFromSerializedProto({model, bytes});
        if (status.code() == sentencepiece::util::StatusCode::kResourceExhausted)
            return take(error, where, status, WEFT_NO_MEMORY);
        if (!status.ok()) return fail(error, WEFT_BAD_FILE, where, "is not a SentencePiece model");
        weft_tokenizer_info info = {nullptr,     nullptr,     p->GetPieceSize(), p->pad_id(),
                                    p->unk_id(), p->bos_id(), p->eos_id()};
        find_kind(*p, &info);
        made = weft_tokenizer_new(&sentencepiece_kind, p.get(), &info, error);
        if (!made) return WEFT_NO_MEMORY;
        p.release();
        return WEFT_OK;
    });
    if (status == WEFT_OK) return made;
    weft_tokenizer_free(made);
    return nullptr;
}

weft_tokenizer *spm_load(const char *path, weft_error *error)
{
    weft_tokenizer *made = nullptr;
    const weft_status done = guarded(error, path, for_ids, [&] {
        std::string bytes;
        const weft_status status = read_file(path, &bytes, error);
        if (status == WEFT_OK) made = spm_parse(bytes.data(), bytes.size(), path, error);
        return status;
    });
    if (done == WEFT_OK) return made;
    weft_tokenizer_free(made);
    return nullptr;
}
