// Runs inside VS Code's extension host, by its own extension-test API: what `run` throws is the failure.
const assert = require('node:assert');
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

exports.run = async function run() {
  const [file] = await vscode.workspace.findFiles('model.py');
  const document = await vscode.workspace.openTextDocument(file);
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
