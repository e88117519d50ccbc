-- What a person does in Neovim with a file that has a mistake; what they see goes to a file, as JSON.
-- The configuration is the documented one: this script only opens, looks, takes the fix and saves.
local source, out = unpack(vim.json.decode(vim.env.MASE_TEST))
local told = { version = vim.version() }

local function until_(name, condition)
  if not vim.wait(60000, condition, 20) then error("never: " .. name) end
end

local function ask(method, params)
  for _, answer in pairs(assert(vim.lsp.buf_request_sync(0, method, params, 60000))) do
    assert(answer.error == nil, vim.inspect(answer.error))
    if answer.result ~= nil then return answer.result end
  end
end

local function position()
  if vim.fn.has("nvim-0.11") == 0 then return vim.lsp.util.make_position_params(0) end
  return vim.lsp.util.make_position_params(0, vim.lsp.get_clients()[1].offset_encoding)
end

local function find(text)
  vim.fn.cursor(1, 1)
  assert(vim.fn.search(text, "c") > 0, text)
end

-- The text of the floating window that a key binding opens.
local function floating()
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(window).relative ~= "" then
      return table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, true), "\n")
    end
  end
end

-- [line, column in bytes, label] of every hint that Neovim holds; it draws them as a window shows them.
local function hints()
  return vim.tbl_map(function(each)
    local hint = each.inlay_hint
    return { hint.position.line + 1, hint.position.character, hint.label }
  end, vim.lsp.inlay_hint.get({ bufnr = 0 }))
end

-- [line, text] of every lens.
local function lenses()
  return vim.tbl_map(function(each) return { each.range.start.line + 1, each.command.title } end, vim.lsp.codelens.get(0))
end

vim.cmd("edit " .. vim.fn.fnameescape(source))
until_("a diagnostic", function() return #vim.diagnostic.get(0) > 0 end)
told.diagnostics = vim.tbl_map(function(each) return { each.lnum + 1, each.col, each.message } end, vim.diagnostic.get(0))

-- What the statusline shows of the trace.
local function status_ends(state)
  local shown = vim.api.nvim_eval_statusline(vim.o.statusline, {}).str
  if not shown:find(state, 1, true) then return false end
  told.statuslines = told.statuslines or {}
  table.insert(told.statuslines, shown:match("MASE: %S+"))
  return true
end
until_("a failed trace in the statusline", function() return status_ends("MASE: failed") end)

local events = vim.fn.exists(":MaseEvents") == 2 and {} or nil
if events then
  vim.cmd("MaseEvents")
  vim.api.nvim_create_autocmd("User", {
    pattern = "MaseEvent",
    callback = function(args) table.insert(events, args.data) end,
  })
end

find("hidden")
vim.lsp.buf.hover()
until_("a hover", function() return floating() ~= nil end)
told.hover = floating()
vim.cmd("only")

find("self.head(hidden)")
vim.ui.select = function(items, options, choose)
  told.offered = vim.tbl_map(options.format_item, items)
  for number, title in ipairs(told.offered) do
    if title:find("Change", 1, true) then choose(items[number], number) end
  end
end
vim.lsp.buf.code_action()
until_("the fix", function() return vim.bo.modified end)
told.fixed = vim.api.nvim_buf_get_lines(0, 8, 9, true)[1]
vim.cmd("write")
until_("no diagnostic", function() return #vim.diagnostic.get(0) == 0 end)
until_("a finished trace in the statusline", function() return status_ends("MASE: ready") end)
if events then
  until_("events", function()
    local topics = {}
    for _, event in ipairs(events) do topics[event.topic .. tostring(event.error)] = true end
    return topics["graphnil"] and topics["problems0"]
  end)
  told.events, told.messages = events, vim.fn.execute("messages")
end

local function has(list, text)
  return function() return vim.inspect(list()):find(text, 1, true) ~= nil end
end
if vim.lsp.inlay_hint then
  until_("hints", has(hints, "f32[B, 5]"))
  told.hints, told.encoding = hints(), vim.lsp.get_clients()[1].offset_encoding
end
-- Neovim asks for lenses again when the file is written, or the cursor rests; a question while one waits is not sent.
until_("a lens", function()
  vim.api.nvim_exec_autocmds("CursorHold", { buffer = 0 })
  return has(lenses, "709 parameters")()
end)
told.lenses = lenses()

-- What a compiler makes of the model is a file beside the code, whose lines know their Python, and which follows saves.
local model = vim.api.nvim_get_current_buf()
if vim.fn.has("nvim-0.8") == 1 then
  vim.cmd("Mase showCompiled view=dynamo")
  until_("the window of the document", function()
    for _, window in ipairs(vim.api.nvim_list_wins()) do
      local name = vim.api.nvim_buf_get_name(vim.api.nvim_win_get_buf(window))
      if name:find("dynamo.py", 1, true) then
        vim.api.nvim_set_current_win(window)
        return true
      end
    end
  end)
  find("self.head(hidden)")
  vim.fn.cursor(vim.fn.line(".") + 1, 9)
  local place = ask("textDocument/definition", position())[1]
  told.definition = { vim.fn.fnamemodify(vim.uri_to_fname(place.uri), ":t"), place.range.start.line + 1 }
  told.servers = #vim.lsp.get_clients()
  vim.cmd("only")
end
local shown = ask("workspace/executeCommand", {
  command = "mase.showCompiled",
  arguments = { { uri = vim.uri_from_bufnr(model), view = "dynamo" } },
})
told.compiled = shown.text
vim.api.nvim_set_current_buf(model)
vim.fn.setline(13, "        return self.head(hidden).sin()")
vim.cmd("write")
until_("the graph of the new text", function()
  return table.concat(vim.fn.readfile(vim.uri_to_fname(shown.uri)), "\n"):find(".sin()", 1, true) ~= nil
end)

-- A command that needs no question, as a key binding would have it.
told.pipeline = ask("workspace/executeCommand", {
  command = "mase.applyPass",
  arguments = { { uri = vim.uri_from_bufnr(0), pass = "quantize", arguments = { default = "fixed(8,4)" } } },
}).steps

local file = assert(io.open(out, "w"))
file:write(vim.json.encode(told))
file:close()
vim.cmd("qall!")
