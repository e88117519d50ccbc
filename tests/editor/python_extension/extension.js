// The part of the Python extension's API that MASE uses, and `choose`, by which tests choose as a person does.
const vscode = require('vscode');

exports.activate = () => {
  const chosen = new Map();
  const changed = new vscode.EventEmitter();
  const key = (folder) => folder?.toString() ?? '';
  return {
    environments: {
      onDidChangeActiveEnvironmentPath: changed.event,
      getActiveEnvironmentPath: (folder) => ({ id: key(folder), path: chosen.get(key(folder)) }),
      resolveEnvironment: async ({ path }) => path && { executable: { uri: vscode.Uri.file(path) } },
    },
    choose(folder, path) {
      chosen.set(key(folder), path);
      changed.fire({ id: path, path, resource: folder });
    },
  };
};
