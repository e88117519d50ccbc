# `make release` fills in what stands between @. The interpreter of the models is chosen as everywhere: `mase-server doctor`.
{ pkgs ? import <nixpkgs> { } }:

pkgs.python3Packages.buildPythonApplication {
  pname = "mase-server";
  version = "@VERSION@";
  pyproject = true;

  src = pkgs.fetchurl {
    url = "@URL@/releases/download/v@VERSION@/mase_server-@VERSION@.tar.gz";
    sha256 = "@SHA256@";
  };

  build-system = [ pkgs.python3Packages.setuptools ];

  dependencies = with pkgs.python3Packages; [
    pygls
    lsprotocol
    msgpack
    watchdog
    platformdirs
    rich
    typer
  ];

  # The tests need torch, which the server does not.
  doCheck = false;
  pythonImportsCheck = [ "mase_server" ];

  meta = {
    description = "A live compiler explorer for PyTorch models";
    homepage = "@URL@";
    license = pkgs.lib.licenses.asl20;
    mainProgram = "mase-server";
  };
}
