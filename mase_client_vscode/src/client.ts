/** The language client: vscode-languageclient with MASE's additions. */
import { LogOutputChannel, Uri, commands, workspace } from 'vscode';
import {
  DidChangeConfigurationNotification,
  DynamicFeature,
  ErrorHandler,
  ExecuteCommandRegistrationOptions,
  ExecuteCommandRequest,
  Executable,
  InitializeParams,
  LanguageClient,
  LanguageClientOptions,
  Middleware,
  RegistrationData,
  RevealOutputChannelOn,
  StaticFeature,
  WorkDoneProgressCancelNotification,
} from 'vscode-languageclient/node';
import { Interpreters } from './environments/interpreters';
import { LINKS } from './links';
import { passProgress } from './passes/progress';
import { NOTEBOOK } from './notebooks';
import { COMPILED, HARDWARE, InitializationOptions } from './protocol';
import { SECTION } from './settings';
import { reveal, showBeside } from './verilog/documents';

/** VS Code registers each command once, so the extension handles the server's commands that it offers, too. */
export class MaseClient extends LanguageClient {
  /** The extension's own commands: the server leaves out those announced here. */
  private own: string[] = [];

  override async start(): Promise<void> {
    this.own = (await commands.getCommands(true)).filter((command) => command.startsWith(`${SECTION}.`));
    await super.start();
  }

  protected override fillInitializeParams(params: InitializeParams): void {
    super.fillInitializeParams(params);
    params.capabilities.experimental = { commands: { commands: this.own } };
  }

  override registerFeature(feature: StaticFeature | DynamicFeature<unknown>): void {
    super.registerFeature(feature);
    if (!('registrationType' in feature) || feature.registrationType.method !== ExecuteCommandRequest.method) return;
    const dynamic = feature as DynamicFeature<ExecuteCommandRegistrationOptions>;
    const register = dynamic.register.bind(dynamic);
    dynamic.register = (data) => void commands.getCommands(true).then((taken) => register(without(data, taken)));
  }

  /** Make the server request its settings, and with them the interpreters, again. */
  async tellConfiguration(): Promise<void> {
    if (this.isRunning()) await this.sendNotification(DidChangeConfigurationNotification.type, { settings: null });
  }
}

/** Hardware and compiled graphs that the server shows open beside their source; everything else as usual. */
const besideItsSource: NonNullable<NonNullable<Middleware['window']>['showDocument']> = async (params, token, next) => {
  const uri = Uri.parse(params.uri);
  if (uri.scheme !== HARDWARE && uri.scheme !== COMPILED) return next(params, token);
  const editor = await showBeside(uri);
  if (params.selection !== undefined) reveal(editor, params.selection.start.line);
  return { success: true };
};

function without(
  data: RegistrationData<ExecuteCommandRegistrationOptions>,
  taken: string[],
): RegistrationData<ExecuteCommandRegistrationOptions> {
  const free = data.registerOptions.commands.filter((command) => !taken.includes(command));
  return { ...data, registerOptions: { ...data.registerOptions, commands: free } };
}

export function createClient(
  server: Executable,
  interpreters: Interpreters,
  errorHandler: ErrorHandler,
  outputChannel: LogOutputChannel,
  traceOutputChannel: LogOutputChannel,
): MaseClient {
  const options: LanguageClientOptions = {
    documentSelector: [{ language: 'python', scheme: 'file' }, { language: 'python', notebook: NOTEBOOK }, { scheme: HARDWARE }, { scheme: COMPILED }],
    outputChannel,
    traceOutputChannel,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    initializationOptions: (): InitializationOptions => ({
      trusted: workspace.isTrusted,
      commandLinks: LINKS,
      interpreter: interpreters.toProtocol(),
    }),
    errorHandler,
    middleware: {
      workspace: { configuration: withInterpreters(interpreters) },
      window: { showDocument: besideItsSource },
      handleWorkDoneProgress: passProgress((token) => void client.sendNotification(WorkDoneProgressCancelNotification.type, { token })),
    },
    markdown: { isTrusted: { enabledCommands: [...LINKS, 'mase.retrace', 'mase.showLog', 'mase.pipeline'] }, supportThemeIcons: true },
  };
  const client = new MaseClient(SECTION, 'MASE', server, options);
  return client;
}

/** The user's settings, with `interpreter` filled in by the one chosen for that folder. */
function withInterpreters(interpreters: Interpreters): NonNullable<NonNullable<Middleware['workspace']>['configuration']> {
  return async (params, token, next) => {
    const answers = await next(params, token);
    if (!Array.isArray(answers)) return answers;
    return answers.map((answer: unknown, index) => {
      const item = params.items[index];
      if (item?.section !== SECTION || typeof answer !== 'object') return answer;
      const folder = item.scopeUri === undefined ? undefined : workspace.getWorkspaceFolder(Uri.parse(item.scopeUri))?.uri;
      return { ...answer, interpreter: interpreters.of(folder) ?? null };
    });
  };
}
