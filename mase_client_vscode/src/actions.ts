/** The actions that the status item opens: the few that users want there, by mouse or by keyboard. */
import { commands, window } from 'vscode';

const ACTIONS: Record<string, string> = {
  '$(refresh) Trace this file again': 'mase.retrace',
  '$(list-selection) Pick the model to show': 'mase.pickRoot',
  '$(layers) Passes': 'mase.pipeline',
  '$(type-hierarchy) Graph': 'mase.showGraph',
  '$(table) Costs': 'mase.showCosts',
  '$(dashboard) Costs on a device': 'mase.pickDevice',
  '$(server-environment) Choose the Python of the models': 'mase.chooseInterpreter',
  '$(debug-restart) Restart the server': 'mase.restart',
  '$(output) Log': 'mase.showLog',
  '$(report) Collect a report': 'mase.collectReport',
  '$(gear) Settings': 'mase.openSettings',
  '$(mortar-board) Get started': 'mase.walkthrough',
};

export async function showActions(): Promise<void> {
  const chosen = await window.showQuickPick(Object.keys(ACTIONS), { title: 'MASE' });
  const command = chosen && ACTIONS[chosen];
  if (command) await commands.executeCommand(command);
}
