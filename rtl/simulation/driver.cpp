// Drive every input stream of a design from a file, and compare every beat of every output stream with a file.
//
//   simulate PLAN [--stall PERCENT] [--seed N] [--late] [--reset CYCLE] [--patience CYCLES] [--progress]
//                 [--wave FILE] [--wave-from CYCLE] [--wave-cycles N]
//
// PLAN has a line for each stream: `in|out NAME WORD BITS FILE [BEATS]`, where WORD is the stream's first word in the
// data wires, and the k-th `in` has bit k of the valid and ready wires, the k-th `out` likewise. FILE has one beat a
// line, hexadecimal; BEATS are those of a sample (default 1). A line `patience CYCLES` is as the option.
//   --stall     a source with nothing on offer waits, and a sink is not ready, in this share of the cycles
//   --late      a sink is ready only after it saw valid: a design whose valid waits for ready stands still
//   --reset     reset at this cycle, in the middle of everything, and begin again with all streams
//   --patience  give up after so many cycles in which no beat moved (default 100000)
//   --wave      write the waveform of so many cycles (default 1000) from this one on (default 0), of a program that was built
//               with Verilator's --trace; after a reset, if there is one. Cycle N has the times 2 N and 2 N + 1
//   --progress  tell on stderr, now and then, which share of the results came: `progress 0.25`
// Writes the beats that came beside the expected ones (FILE.got), and a line for each stream to stdout:
//   `in NAME beats total first_cycle last_cycle`
//   `out NAME beats total mismatches first_mismatch changed surplus first_cycle last_cycle sample_cycle mismatch_cycle`
// where `changed` counts beats that were withdrawn or altered while they waited, `sample_cycle` is that of the first
// sample's last beat, `mismatch_cycle` that of the first beat that differs, and cycles count from the end of reset; before
// these `reset CYCLE in_beats out_beats`, if there was one, with the beats that had moved by then. The last line says it in
// words.
// Exit status: 0 all equal, 1 something differs, 2 it stood still, 3 an option, the plan or a file is wrong.
#include "driver.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {
using Beat = std::vector<uint32_t>;

struct Options {
  std::string plan, wave;
  unsigned stall = 0, seed = 1;
  bool late = false, progress = false;
  long reset = -1, patience = -1, wave_from = 0, wave_cycles = 1000;
};

struct Stream {
  bool is_input = false;
  std::string name, file;
  size_t word = 0, bits = 0, bit = 0, sample = 1;
  std::vector<Beat> beats;  // to give, or to expect
  std::vector<Beat> got;
  size_t moved = 0, mismatches = 0, changed = 0, surplus = 0;
  long first_mismatch = -1, first_cycle = -1, last_cycle = -1, sample_cycle = -1, mismatch_cycle = -1;
  bool offering = false, waiting = false;
  Beat waited;
  std::mt19937 random;

  size_t words() const { return (bits + 31) / 32; }
  uint32_t last_mask() const { return bits % 32 ? (1u << bits % 32) - 1 : ~0u; }
  bool done() const { return moved >= beats.size(); }
};

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "simulate: " << why << "\n";
  std::exit(3);
}

Beat from_hex(const std::string& text, size_t words) {
  Beat beat(words, 0);
  size_t nibble = 0;
  for (size_t at = text.size(); at-- > 0; ++nibble) {
    if (!std::isxdigit(static_cast<unsigned char>(text[at]))) refuse("the beat " + text + " is not hexadecimal");
    const uint32_t digit = std::stoul(text.substr(at, 1), nullptr, 16);
    if (nibble / 8 < words) beat[nibble / 8] |= digit << (nibble % 8 * 4);
    else if (digit != 0) refuse("the beat " + text + " is wider than its stream");
  }
  return beat;
}

std::string to_hex(const Beat& beat, size_t bits) {
  std::string text;
  for (size_t nibble = (bits + 3) / 4; nibble-- > 0;)
    text += "0123456789abcdef"[beat[nibble / 8] >> (nibble % 8 * 4) & 15];
  return text;
}

long number(const std::string& name, const char* text, long most = 1000000000000) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end || value < 0 || value > most)
    refuse(name + " takes a whole number from 0 to " + std::to_string(most) + ", not " + text);
  return value;
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string name = argv[at];
    if (name.rfind("+", 0) == 0) continue;  // Verilator's own
    if (name == "--late") options.late = true;
    else if (name == "--progress") options.progress = true;
    else if (name.rfind("--", 0) != 0) options.plan = name;
    else if (++at == argc) refuse(name + (name == "--wave" ? " lacks its file" : " lacks its number"));
    else if (name == "--wave") options.wave = argv[at];
    else if (name == "--wave-from") options.wave_from = number(name, argv[at]);
    else if (name == "--wave-cycles") options.wave_cycles = number(name, argv[at]);
    else if (name == "--stall") options.stall = number(name, argv[at], 99);
    else if (name == "--seed") options.seed = number(name, argv[at]);
    else if (name == "--reset") options.reset = number(name, argv[at]);
    else if (name == "--patience") options.patience = number(name, argv[at]);
    else refuse(name + " is no option");
  }
  if (options.plan.empty()) refuse("no plan was named");
  return options;
}

std::vector<Stream> read_plan(Options& options) {
  std::ifstream plan(options.plan);
  if (!plan) refuse("the plan " + options.plan + " cannot be read");
  std::vector<Stream> streams;
  size_t inputs = 0, outputs = 0;
  for (std::string line; std::getline(plan, line);) {
    Stream stream;
    std::string kind;
    std::istringstream words(line);
    words >> kind;
    if (kind == "patience") {
      long cycles = 0;
      words >> cycles;
      if (options.patience < 0) options.patience = cycles;
      continue;
    }
    words >> stream.name >> stream.word >> stream.bits >> stream.file;
    if (!(words >> stream.sample)) stream.sample = 1;
    stream.is_input = kind == "in";
    stream.bit = stream.is_input ? inputs++ : outputs++;
    stream.random.seed(options.seed * 7919 + streams.size());
    std::ifstream file(stream.file);
    if (!file) refuse("the vectors " + stream.file + " cannot be read");
    for (std::string beat; std::getline(file, beat);) stream.beats.push_back(from_hex(beat, stream.words()));
    streams.push_back(std::move(stream));
  }
  if (options.patience < 0) options.patience = 100000;
  return streams;
}

bool get_bit(const uint32_t* words, size_t at) { return words[at / 32] >> (at % 32) & 1; }

void set_bit(uint32_t* words, size_t at, bool value) {
  words[at / 32] = (words[at / 32] & ~(1u << (at % 32))) | (uint32_t(value) << (at % 32));
}

class Simulation {
 public:
  Simulation(Design& design, std::vector<Stream> streams, Options options)
      : design_(design), streams_(std::move(streams)), options_(std::move(options)) {}

  int run() {
    reset();
    long since_moved = 0, after_end = 0;
    while (after_end < 200) {  // a while longer, for beats that should not come
      if (cycle_ == options_.reset) {
        options_.reset = -1;
        std::cout << "reset " << cycle_ << " " << moved(true) << " " << moved(false) << "\n";
        reset();
      }
      since_moved = step() ? 0 : since_moved + 1;
      if (options_.progress && cycle_ % 4096 == 0) tell();
      if (finished()) ++after_end;
      else if (since_moved > options_.patience) return report(2);
    }
    bool equal = true;
    for (const Stream& stream : streams_) equal &= !stream.mismatches && !stream.changed && !stream.surplus;
    return report(equal ? 0 : 1);
  }

 private:
  // At most five times a second.
  void tell() {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < std::chrono::milliseconds(200)) return;
    told_ = now;
    size_t total = 0;
    for (const Stream& stream : streams_)
      if (!stream.is_input) total += stream.beats.size();
    std::cerr << "progress " << double(moved(false)) / (total ? total : 1) << std::endl;
  }

  // Beats of all inputs, or of all outputs.
  size_t moved(bool of_inputs) const {
    size_t count = 0;
    for (const Stream& stream : streams_)
      if (stream.is_input == of_inputs) count += stream.moved;
    return count;
  }

  bool finished() const {
    for (const Stream& stream : streams_)
      if (!stream.done()) return false;
    return true;
  }

  void reset() {
    for (Stream& stream : streams_) {
      stream.moved = stream.mismatches = stream.surplus = 0;
      stream.first_mismatch = stream.first_cycle = stream.last_cycle = stream.sample_cycle = -1;
      stream.mismatch_cycle = -1;
      stream.offering = stream.waiting = false;
      stream.got.clear();
      if (stream.is_input) set_bit(design_.in_valid, stream.bit, false);
      else set_bit(design_.out_ready, stream.bit, false);
    }
    design_.set_reset(in_reset_ = true);
    for (int edge = 0; edge < 3; ++edge) tick();
    design_.set_reset(in_reset_ = false);
    cycle_ = 0;
  }

  void tick() {
    design_.set_clock(true);
    design_.eval();
    if (shown() && !in_reset_) design_.dump(2 * cycle_ + 1);
    design_.set_clock(false);
    design_.eval();
  }

  bool idle(Stream& stream) { return stream.random() % 100 < options_.stall; }

  void offer(Stream& stream) {
    if (!stream.offering && !stream.done() && !idle(stream)) {
      stream.offering = true;
      const Beat& beat = stream.beats[stream.moved];
      std::memcpy(design_.in_data + stream.word, beat.data(), beat.size() * sizeof(uint32_t));
    } else if (!stream.offering) {  // what is on the wires without valid must not matter
      for (size_t at = 0; at < stream.words(); ++at) design_.in_data[stream.word + at] = stream.random();
    }
    design_.in_data[stream.word + stream.words() - 1] &= stream.last_mask();
    set_bit(design_.in_valid, stream.bit, stream.offering);
  }

  // Of the run after the reset, if there is one.
  bool shown() const {
    return !options_.wave.empty() && options_.reset < 0 && cycle_ >= options_.wave_from &&
           cycle_ - options_.wave_from < options_.wave_cycles;
  }

  // One clock cycle; whether any beat moved.
  bool step() {
    for (Stream& stream : streams_) {
      if (stream.is_input) offer(stream);
      else set_bit(design_.out_ready, stream.bit, options_.late ? stream.waiting : !idle(stream));
    }
    design_.eval();
    if (shown()) design_.dump(2 * cycle_);
    bool any = false;
    for (Stream& stream : streams_) any |= stream.is_input ? give(stream) : take(stream);
    tick();
    ++cycle_;
    return any;
  }

  void count(Stream& stream) {
    if (stream.first_cycle < 0) stream.first_cycle = cycle_;
    stream.last_cycle = cycle_;
    if (++stream.moved == stream.sample) stream.sample_cycle = cycle_;
  }

  bool give(Stream& stream) {
    if (!stream.offering || !get_bit(design_.in_ready, stream.bit)) return false;
    stream.offering = false;
    count(stream);
    return true;
  }

  bool take(Stream& stream) {
    const uint32_t* data = design_.out_data + stream.word;
    const bool valid = get_bit(design_.out_valid, stream.bit);
    Beat beat(data, data + stream.words());
    beat.back() &= stream.last_mask();
    if (stream.waiting && (!valid || beat != stream.waited)) ++stream.changed;
    const bool moves = valid && get_bit(design_.out_ready, stream.bit);
    stream.waiting = valid && !moves;
    stream.waited = beat;
    if (!moves) return false;
    if (stream.done()) {
      ++stream.surplus;
      return false;
    }
    if (beat != stream.beats[stream.moved] && ++stream.mismatches == 1) {
      stream.first_mismatch = stream.moved;
      stream.mismatch_cycle = cycle_;
    }
    stream.got.push_back(beat);
    count(stream);
    return true;
  }

  int report(int status) const {
    for (const Stream& stream : streams_) {
      std::cout << (stream.is_input ? "in " : "out ") << stream.name << " " << stream.moved << " " << stream.beats.size();
      if (!stream.is_input) {
        std::cout << " " << stream.mismatches << " " << stream.first_mismatch << " " << stream.changed << " "
                  << stream.surplus;
        std::ofstream file(stream.file + ".got");
        for (const Beat& beat : stream.got) file << to_hex(beat, stream.bits) << "\n";
        file.close();
        if (!file) refuse(stream.file + ".got cannot be written; is the disk full?");
      }
      std::cout << " " << stream.first_cycle << " " << stream.last_cycle;
      if (!stream.is_input) std::cout << " " << stream.sample_cycle << " " << stream.mismatch_cycle;
      std::cout << "\n";
    }
    std::cout << verdict(status) << std::endl;
    return status;
  }

  std::string verdict(int status) const {
    static const char* const words[] = {"equal: all beats are the expected ones", "different", "it stood still"};
    std::string text = words[status];
    for (const Stream& stream : streams_) {
      const auto told = [&](size_t count, const std::string& what) {
        if (count) text += "; " + stream.name + ": " + std::to_string(count) + what;
      };
      told(stream.beats.size() - stream.moved, stream.is_input ? " beats were not taken" : " beats did not come");
      told(stream.mismatches, " beats differ, the first is line " + std::to_string(stream.first_mismatch + 1) + " of " +
                                  stream.file);
      told(stream.changed, " beats were withdrawn or altered while they waited");
      told(stream.surplus, " beats too many");
      if (status == 0 && !stream.is_input && stream.sample_cycle >= 0) text += "; " + stream.name + ": " + pace(stream);
    }
    return text;
  }

  // Of an output whose beats all came.
  std::string pace(const Stream& stream) const {
    long begin = stream.sample_cycle;
    for (const Stream& each : streams_)
      if (each.is_input) begin = std::min(begin, each.first_cycle);
    std::ostringstream text;
    const size_t samples = stream.beats.size() / stream.sample;
    text << samples << " samples, the first after " << stream.sample_cycle - begin << " cycles";
    if (samples > 1) text << ", then one every " << double(stream.last_cycle - stream.sample_cycle) / (samples - 1);
    return text.str();
  }

  Design& design_;
  std::vector<Stream> streams_;
  Options options_;
  long cycle_ = 0;
  bool in_reset_ = false;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};
}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  const auto design = make_design(argc, argv);
  std::vector<Stream> streams = read_plan(options);
  if (!options.wave.empty() && !design->open_wave(options.wave))
    refuse("the waveform " + options.wave + " cannot be written, or the program was built without --trace");
  return Simulation(*design, std::move(streams), options).run();
}
