/** Writes the messages between VS Code and the server to a log, while the setting asks for it. */
import { EventEmitter, LogLevel, LogOutputChannel, OutputChannel, ViewColumn, window, workspace } from 'vscode';
import { SECTION } from './settings';

const SETTING = `${SECTION}.trace.server`;

/**
 * A channel whose level is the setting. The client library writes messages if the level is `Trace`, which users would
 * otherwise have to set for this channel in each window; without messages the channel is not in the list.
 */
export class TraceChannel implements LogOutputChannel {
  readonly name = 'MASE Trace';
  private channel: OutputChannel | undefined;
  private readonly changed = new EventEmitter<LogLevel>();
  readonly onDidChangeLogLevel = this.changed.event;
  private readonly listener = workspace.onDidChangeConfiguration((event) => {
    if (event.affectsConfiguration(SETTING)) this.changed.fire(this.logLevel);
  });

  get logLevel(): LogLevel {
    return workspace.getConfiguration().get(SETTING, 'off') === 'off' ? LogLevel.Off : LogLevel.Trace;
  }

  trace(message: string): void {
    this.opened.appendLine(`[${new Date().toISOString()}] ${message}`);
  }

  debug = this.trace;
  info = this.trace;
  warn = this.trace;

  error(error: string | Error): void {
    this.trace(`${error}`);
  }

  append(value: string): void {
    this.opened.append(value);
  }

  appendLine(value: string): void {
    this.opened.appendLine(value);
  }

  replace(value: string): void {
    this.opened.replace(value);
  }

  clear(): void {
    this.channel?.clear();
  }

  show(column?: ViewColumn | boolean, preserveFocus?: boolean): void {
    this.opened.show(typeof column === 'boolean' ? column : preserveFocus);
  }

  hide(): void {
    this.channel?.hide();
  }

  dispose(): void {
    this.listener.dispose();
    this.changed.dispose();
    this.channel?.dispose();
  }

  private get opened(): OutputChannel {
    return (this.channel ??= window.createOutputChannel(this.name));
  }
}
