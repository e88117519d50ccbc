// What the driver needs of a design: its wires as 32-bit words, streams side by side. glue.cpp gives it.
// open_wave and dump write a waveform (VCD) where the program is built with Verilator's --trace: two times a cycle, an
// even one when all wires have settled before the clock rises, an odd one after it rose.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

struct Design {
  virtual ~Design() = default;
  virtual void eval() = 0;
  virtual void set_clock(bool high) = 0;
  virtual void set_reset(bool high) = 0;
  virtual bool open_wave(const std::string&) { return false; }
  virtual void dump(uint64_t) {}
  uint32_t *in_data, *in_valid, *in_ready, *out_data, *out_valid, *out_ready;
};

std::unique_ptr<Design> make_design(int argc, char** argv);
