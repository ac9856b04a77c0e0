// The C interface to SentencePiece. No exception and no log line leaves this file.
#include "spm.h"
#include "texts.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <unistd.h>

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
    std::string line = text;
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::snprintf(message, capacity, "%s", line.c_str());
}

// The lines of text files as a vocabulary is trained on them: without their ends and a byte order
// mark, those that are not UTF-8 left out, long ones in pieces of whole words where there are any.
class Lines : public sentencepiece::SentenceIterator
{
  public:
    Lines(const char *const *files, size_t n, spm_counts *counts)
        : files(files, files + n), counts(counts)
    {
        Next();
    }
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
    // The file that could not be read, if one could not.
    std::string unreadable;

  private:
    // The next line into `line`, empty if it is left out; false at the end of the last file.
    bool read()
    {
        at = 0;
        line.clear();
        while (!std::getline(file, line)) {
            if (file.bad() || (file.is_open() && !file.eof())) unreadable = files[next - 1];
            file.close();
            file.clear();
            if (next == files.size() || !unreadable.empty()) return !(ended = true);
            file.open(files[next]);
            first = true;
            if (!file.is_open()) unreadable = files[next];
            next++;
        }
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (first && line.compare(0, 3, "\xEF\xBB\xBF") == 0) line.erase(0, 3);
        first = false;
        counts->lines++;
        if (!texts_is_utf8(line.data(), line.size())) {
            counts->invalid++;
            line.clear();
        }
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
    std::ifstream file;
    std::string line, piece;
    size_t next = 0, at = 0;
    bool first = true, ended = false;
};

// Written beside, synced and renamed, so that a full disk leaves no half vocabulary.
bool write_whole(const std::string &path, const std::string &bytes)
{
    const std::string beside = path + ".tmp";
    std::FILE *file = std::fopen(beside.c_str(), "wb");
    if (!file) return false;
    bool good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
                std::fflush(file) == 0 && fsync(fileno(file)) == 0;
    int why = errno;
    if (std::fclose(file) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && std::rename(beside.c_str(), path.c_str()) == 0) return true;
    if (good) why = errno;
    std::remove(beside.c_str());
    errno = why;
    return false;
}
} // namespace

bool spm_train(const char *const *files, size_t n, const char *path, const spm_options *options,
               spm_counts *counts, char *message, size_t capacity)
{
    *counts = {0, 0, 0};
    try {
        const int errors_only = 2;
        sentencepiece::logging::SetMinLogLevel(errors_only);
        std::string model;
        Lines lines(files, n, counts);
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
        const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
        if (!lines.unreadable.empty())
            say(message, capacity, lines.unreadable + " cannot be read");
        else if (!status.ok())
            say(message, capacity, status.ToString());
        else if (!write_whole(path, model))
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

size_t spm_characters(const spm *s, const char *text)
{
    try {
        const auto &p = s->processor;
        std::vector<std::string> pieces, probe;
        if (!p.Encode(text, &pieces).ok() || !p.Encode("a", &probe).ok()) return 0;
        size_t n = 0;
        for (const std::string &piece : pieces) {
            // A byte that its characters lack is written <0x0A>.
            const bool byte = p.IsByte(p.PieceToId(piece));
            const auto begins = [](unsigned char c) { return (c & 0xC0) != 0x80; };
            if (byte)
                n += begins((unsigned char)std::stoi(piece.substr(3, 2), nullptr, 16));
            else
                n += (size_t)std::count_if(piece.begin(), piece.end(), begins);
        }
        // Most vocabularies put a blank in front of a text, which is none of it.
        static const std::string blank = "\xE2\x96\x81";
        const bool extra = !probe.empty() && probe[0].compare(0, blank.size(), blank) == 0;
        return n && extra ? n - 1 : n;
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
