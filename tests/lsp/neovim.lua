-- What a person does in Neovim 0.7 with a model and its hardware; what came of it goes to a file, as JSON.
local python, source, out = unpack(vim.env.MASE_TEST and vim.json.decode(vim.env.MASE_TEST))
local told, states = {}, {}

local function until_(name, condition)
  if not vim.wait(120000, condition, 20) then error("never: " .. name) end
end

local client = vim.lsp.start_client({
  name = "mase",
  cmd = { python, "-m", "mase_server", "lsp" },
  root_dir = vim.fn.fnamemodify(source, ":h"),
  init_options = { trusted = true, interpreter = python },
  handlers = { ["mase/status"] = function(_, status) table.insert(states, status.state) end },
})

local function open(file)
  vim.cmd("edit " .. vim.fn.fnameescape(file))
  vim.lsp.buf_attach_client(0, client)
end

local function ask(method, params)
  local answers = assert(vim.lsp.buf_request_sync(0, method, params, 120000))
  local answer = assert(answers[client], method .. " had no answer")
  assert(answer.error == nil, vim.inspect(answer.error))
  return answer.result
end

local function run(command, given) return ask("workspace/executeCommand", { command = command, arguments = { given } }) end

-- The cursor on the first match of a text, as a search puts it there.
local function go_to(text)
  vim.fn.cursor(1, 1)
  assert(vim.fn.search(text, "c") > 0, text)
  return vim.lsp.util.make_position_params(0, "utf-16")
end

local function line_of(place) return place.range.start.line + 1 end

open(source)
until_("ready", function() return vim.tbl_contains(states, "ready") end)
local uri = vim.uri_from_bufnr(0)
local emitted = run("mase.emitVerilog", { uri = uri, build = vim.empty_dict() })
told.module = emitted.module
go_to("self.head(x)")
told.use = vim.fn.line(".")
local at = go_to("head(x)")
told.card = ask("textDocument/hover", at).contents.value
local there = ask("textDocument/implementation", at)[1]
told.same = there.uri == emitted.uri

local sheet = vim.uri_to_fname(emitted.uri)
open(sheet)
vim.bo.autoread = true
told.text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), "\n")
local back = ask("textDocument/definition", go_to("head_i"))
told.back = { back[1].uri == uri, line_of(back[1]) }
local lit = ask("textDocument/documentHighlight", go_to("head_i"))
told.lit = { lit[1].range.start.line == there.range.start.line, #lit }

open(source)
vim.cmd("%s/num_classes=5/num_classes=7/")
vim.cmd("write")
until_("written again", function()
  vim.cmd("checktime " .. vim.fn.bufnr(sheet))
  local lines = vim.api.nvim_buf_get_lines(vim.fn.bufnr(sheet), 0, -1, true)
  return table.concat(lines, "\n"):find("DATA_OUT_0_TENSOR_SIZE_DIM_0(7)", 1, true) ~= nil
end)
local saved = run("mase.saveVerilog", { uri = uri, folder = vim.fn.fnamemodify(source, ":h") .. "/out", show = false })
told.saved = #saved.files

-- As a key binding would have it: nobody waits for the answer.
vim.lsp.buf.execute_command({ command = "mase.closeVerilog", arguments = { { uri = uri } } })
until_("closed", function() return vim.tbl_contains({ "nil", "userdata" }, type(ask("mase/verilog", { uri = uri }).emission)) end)
told.closed = true

local file = assert(io.open(out, "w"))
file:write(vim.json.encode(told))
file:close()
vim.cmd("qall!")
