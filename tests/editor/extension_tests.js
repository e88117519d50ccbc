// Runs inside VS Code's extension host, by its own extension-test API: what `run` throws is the failure.
const assert = require('node:assert');
const fs = require('node:fs');
const vscode = require('vscode');

const ID = 'mase.mase-vscode';

const tests = {
  async 'the extension activates when a Python file opens'(extension) {
    await until(() => extension.isActive, 'the extension was active');
  },

  async 'every command of the palette is registered'(extension) {
    const known = new Set(await vscode.commands.getCommands(true));
    const offered = extension.packageJSON.contributes.commands.map(({ command }) => command);
    assert.ok(offered.length >= 3);
    assert.deepStrictEqual(offered.filter((command) => !known.has(command)), []);
  },

  async 'the server runs and the status is shown'(extension) {
    await until(() => extension.exports.status === 'MASE: ready', 'the status was ready');
    assert.ok(extension.exports.pid > 0);
  },

  async 'inlay hints are there through the API that other extensions use'(extension, document) {
    const all = new vscode.Range(0, 0, document.lineCount, 0);
    const hints = await vscode.commands.executeCommand('vscode.executeInlayHintProvider', document.uri, all);
    assert.deepStrictEqual(hints.map(({ label }) => label), [': f32[B, 1]', ': f32[B, 2]']);
  },

  async 'an interpreter chosen in the Python extension reaches the server, for its folder alone'() {
    await choose(1, '/chosen/second/python');
    await until(() => told(1).at(-1) === '/chosen/second/python', 'the server knew the interpreter');
    assert.deepStrictEqual(told(0).at(-1), null);
    assert.strictEqual(events('started').length, 1);
  },

  async 'choices within a moment are told once, and one that changes nothing is not told'() {
    const before = told(1).length;
    for (const name of ['a', 'b', 'c', 'd']) await choose(1, `/chosen/${name}/python`);
    await until(() => told(1).at(-1) === '/chosen/d/python', 'the server knew the last choice');
    await choose(1, '/chosen/d/python');
    await new Promise((resolve) => setTimeout(resolve, 2 * SETTLE_MS)); // nothing is to come, so there is no event of it
    await choose(1, '/chosen/e/python');
    await until(() => told(1).at(-1) === '/chosen/e/python', 'the server knew another choice');
    assert.deepStrictEqual(told(1).slice(before), ['/chosen/d/python', '/chosen/e/python']);
    assert.strictEqual(events('started').length, 1);
  },

  async 'a restart gives another process'(extension) {
    const before = extension.exports.pid;
    await vscode.commands.executeCommand('mase.restart');
    assert.notStrictEqual(extension.exports.pid, before);
    assert.ok(extension.exports.pid > 0);
  },

  async 'retracing after a restart reaches the new server'(extension, document) {
    await vscode.commands.executeCommand('mase.retrace', document.uri.toString());
    await until(() => extension.exports.status === 'MASE: ready', 'the status was ready');
  },
};

/** As `interpreters.ts` has it. */
const SETTLE_MS = 300;

/** Choose the interpreter of a folder, as the Python extension does. */
async function choose(folder, path) {
  const python = await vscode.extensions.getExtension('ms-python.python').activate();
  python.choose(vscode.workspace.workspaceFolders[folder].uri, path);
}

/** What the fake server wrote down. */
function events(name) {
  const [{ uri }] = vscode.workspace.workspaceFolders;
  const log = vscode.workspace.getConfiguration('mase', uri).get('server.command')[2];
  const all = fs.readFileSync(log, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  return all.filter(({ event }) => event === name);
}

/** The interpreters that the server was told of a folder, one after the other. */
function told(folder) {
  const { path } = vscode.workspace.workspaceFolders[folder].uri;
  const own = events('configuration').filter(({ uri }) => vscode.Uri.parse(uri).path.startsWith(`${path}/`));
  return own.map(({ interpreter }) => interpreter);
}

exports.run = async function run() {
  const [file] = await vscode.workspace.findFiles('model.py');
  const document = await vscode.workspace.openTextDocument(file);
  const [second] = await vscode.workspace.findFiles('second.py');
  await vscode.workspace.openTextDocument(second);
  await vscode.window.showTextDocument(document);
  const extension = vscode.extensions.getExtension(ID);
  for (const [name, test] of Object.entries(tests)) {
    await test(extension, document);
    console.log(`TEST passed: ${name}`);
  }
};

async function until(holds, what) {
  for (const end = Date.now() + 60_000; !holds(); await new Promise((resolve) => setTimeout(resolve, 50))) {
    assert.ok(Date.now() < end, `waited in vain until ${what}`);
  }
}
