// What the driver needs of a design: its wires as 32-bit words, streams side by side. glue.cpp gives it.
#pragma once
#include <cstdint>
#include <memory>

struct Design {
  virtual ~Design() = default;
  virtual void eval() = 0;
  virtual void set_clock(bool high) = 0;
  virtual void set_reset(bool high) = 0;
  uint32_t *in_data, *in_valid, *in_ready, *out_data, *out_valid, *out_ready;
};

std::unique_ptr<Design> make_design(int argc, char** argv);
